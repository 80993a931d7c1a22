"""Stands in for vLLM where it is not installed: what Trinity-RFT 0.6.0 imports, and does not use with tinker.

``trinity.common.models.mm_utils`` (images and videos) imports them at its top level, and with it every rollout model.
This folder is on the path only of a Trinity that has no vLLM (r3l.trinity.processes).
"""

__version__ = "0.0.0+absent"
