"""The steps of `hqlt data prepare`: lock the folder, tokenize chunks in parallel, write shards and the index."""
