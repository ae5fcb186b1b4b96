"""What users do with the library: studies, runs, the choice of K, analysis, audit, unlearning, and serving a site."""
