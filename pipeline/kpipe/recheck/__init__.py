"""Sealed artifacts run again: under today's versions, under others, and under the ones that were signed off."""
