"""The experiments, each on its images: which draws, which methods, which settings."""
