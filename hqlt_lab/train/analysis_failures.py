"""Keep a run alive when an analysis of its model fails: backends, probes or sizes.

An analysis does not change the trained weights, so its failure is a warning of the outcome, not the end of the run.
"""

import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from hqlt_lab.errors import HqltError, StoreError
from hqlt_lab.model.analysis.component_sizes import ModelSizes, parameter_sizes, sizes
from hqlt_lab.model.sequence_model import SequenceModel
from hqlt_lab.redact import redact_secrets
from hqlt_lab.train.describe_failure import describe_failure
from hqlt_lab.train.interrupt import RunInterrupted
from hqlt_lab.train.trainer_state import TrainerState

logger = logging.getLogger(__name__)


@contextmanager
def record_analysis_failure(
    trainer_state: TrainerState, analysis: str, *, is_before_training: bool = False
) -> Iterator[None]:
    """Turn an exception of an analysis into a warning of the run, once per message; the log gets the traceback.

    Before training, an HqltError is raised: it is about the settings, such as a backend that cannot run. Afterwards it
    would discard a trained model. A stop signal and a failure of the disk are always raised.
    """
    try:
        yield
    except (RunInterrupted, StoreError):
        raise
    except Exception as error:  # a user's component may raise anything
        if is_before_training and isinstance(error, HqltError):
            raise
        warning = f"{analysis} could not be computed: {describe_failure(error).why}"
        if warning not in trainer_state.warnings:
            trainer_state.warnings.append(warning)
            logger.error(redact_secrets(traceback.format_exc().rstrip()))


def measure_sizes(model: SequenceModel, length: int, trainer_state: TrainerState) -> ModelSizes:
    """Return the sizes of a model; only its parameters if state or FLOPs cannot be computed."""
    model_sizes = ModelSizes(length, tuple(parameter_sizes(model)))
    with record_analysis_failure(trainer_state, "State size and FLOPs"):
        model_sizes = sizes(model, length)
    return model_sizes
