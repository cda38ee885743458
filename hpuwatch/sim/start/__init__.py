"""What the starts of both families share: weights, the bridge, images, amounts of memory."""
