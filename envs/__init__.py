"""Environments, one package each (``registry.py`` lists them); what several share: ``base``, ``tagged_text``,
``single_answer``, ``scripted``. They know no method and import only ``r3l.core`` and each other's shared folders.
"""
