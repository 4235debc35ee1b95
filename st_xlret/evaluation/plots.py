"""Old place of the plots, until their callers have moved."""

from st_xlret.evaluation.tables import plot_language_bias, plot_stages, plot_strengths, plot_training

__all__ = ["plot_language_bias", "plot_stages", "plot_strengths", "plot_training"]
