"""Our state as transformers' generation hands a cache around: filled in place, counted, reordered by beams."""

from torch import Tensor

from hqlt_lab.model.state import State, select_rows


class StateCache:
    """The state of a batch; empty before its first token."""

    is_compileable = False
    is_croppable = False  # what the fast weights have learned cannot be taken back

    def __init__(self) -> None:
        self.state: State | None = None
        self.seen = 0  # tokens so far, padding included, as attention masks count

    def update(self, state: State, tokens: int) -> None:
        self.state, self.seen = state, self.seen + tokens

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.seen

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """The rows that beam search goes on with."""
        assert self.state is not None
        self.state = select_rows(self.state, beam_idx.to(self.state[0].count.device))
