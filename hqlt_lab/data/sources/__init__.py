"""Where text comes from: files, the running Python's library, datasets of Hugging Face."""
