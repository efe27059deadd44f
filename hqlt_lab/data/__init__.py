"""Text as tokens on disk: sources and tokenizers go in, memory-mapped shards and numbered windows come out.

A prepared folder:

    index.json            what is in it; written last, so that a folder with an index is complete
    train-00000.tokens    the tokens of the split, one document after the other, `shard_tokens` of them in a file
    train-00000.starts    where in that file documents begin, 64-bit integers
    valid-…, test-…       the same of the documents that are held out
    tokenizer/            what turns the tokens into text again
    work/                 while it is being prepared: what was asked for, and the pieces that are done

Tokens are unsigned integers of 16 bits where the vocabulary fits, else of 32.  Every document begins with the
separator, which stands nowhere else.
"""
