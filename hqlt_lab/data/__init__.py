"""Tokenized text on disk: sources and tokenizers go in, memory-mapped shards and numbered windows come out.

A prepared folder:

    index.json            what the folder contains; written last, so that a folder with an index is complete
    train-00000.tokens    the tokens of the split, documents concatenated, `shard_tokens` per file
    train-00000.starts    positions in that file where documents begin, 64-bit integers
    valid-…, test-…       the same two files for the held-out documents
    tokenizer/            the tokenizer that decodes the tokens
    work/                 exists only during preparation: the request and the finished chunks

Tokens are unsigned 16-bit integers if the vocabulary fits, otherwise 32-bit.  Every document begins with the
separator, which occurs nowhere else.
"""
