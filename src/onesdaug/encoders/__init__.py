"""Networks that look: backbones, their preprocessing and their base-class training."""
