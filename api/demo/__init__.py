"""The main job as a story: a budget governed from policy to model, through the interfaces users have."""
