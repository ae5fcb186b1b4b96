"""The files engine exchanges signed files through folders, for sites that allow no connection."""
