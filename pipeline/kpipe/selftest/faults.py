"""All faults, by family."""

from __future__ import annotations

from kpipe.selftest import decision, export, golden_set, preprocessing, runtime, weights

FAULTS = (*preprocessing.FAULTS, *weights.FAULTS, *export.FAULTS, *runtime.FAULTS, *decision.FAULTS, *golden_set.FAULTS)
