"""One model against another, from what two runs or bundles left behind. Everything but `subject` and `baseline` is pure."""
