"""One model against another, from what two runs or bundles left behind. Everything but `subject`, `ancestry` and `baseline` is pure."""
