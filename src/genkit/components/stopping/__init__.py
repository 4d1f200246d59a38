"""Stop criteria: each says which rows end with the token just appended, one class a file."""

from genkit.components.stopping.eos import Eos
from genkit.components.stopping.lengths import check_lengths as check_lengths
from genkit.components.stopping.lengths import with_limit as with_limit
from genkit.components.stopping.low_confidence import LowConfidence
from genkit.components.stopping.max_length import MaxLength
from genkit.components.stopping.max_new_tokens import MaxNewTokens
from genkit.components.stopping.repeating import Repeating
from genkit.components.stopping.stop_regex import StopRegex
from genkit.components.stopping.stop_strings import StopStrings
from genkit.components.stopping.stop_strings import first_match as first_match
from genkit.components.stopping.stop_token_ids import StopTokenIds
from genkit.components.stopping.time_limit import TimeLimit

__all__ = [
    "Eos",
    "LowConfidence",
    "MaxLength",
    "MaxNewTokens",
    "Repeating",
    "StopRegex",
    "StopStrings",
    "StopTokenIds",
    "TimeLimit",
]
