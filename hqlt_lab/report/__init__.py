"""From records to an answer: statistics, tables, one sentence."""
