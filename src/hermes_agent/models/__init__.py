"""Language models: thin streaming clients that own their bytes."""
