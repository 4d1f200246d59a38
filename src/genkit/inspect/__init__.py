"""Looking into models and runs."""
