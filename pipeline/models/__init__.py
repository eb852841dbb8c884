"""Other people's model folders: their files, weights, tokenizer, adapters and card."""
