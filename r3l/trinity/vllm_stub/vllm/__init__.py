"""Stub of vLLM with the names that Trinity-RFT 0.6.0 imports but does not use with tinker.

``trinity.common.models.mm_utils`` (images and videos) imports them at its top level, and so does every
rollout model. This folder is on the path only if Trinity's environment has no vLLM
(r3l.trinity.processes).
"""

__version__ = "0.0.0+absent"
