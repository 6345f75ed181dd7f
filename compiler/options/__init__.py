"""Options of the pipeline: the Config, the `CTK_*` variables, the allowed words."""
