"""CUDA code -> syntax trees, labels for every character, and the slice of a file that runs on the device."""

from curate.syntax.device_slice import device_slice
from curate.syntax.labels import label, label_parsed
from curate.syntax.parse import Parsed, parse_cuda
from curate.syntax.types import CodeLabels

__all__ = ["CodeLabels", "Parsed", "device_slice", "label", "label_parsed", "parse_cuda"]
