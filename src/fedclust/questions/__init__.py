"""What preprocessing and validation ask the sites: bounds, scales, schemas, missing values, alignment, indices."""
