"""Import the packages before pytest imports their modules: otherwise a module that its package
imports would be executed twice, with two copies of every class.
"""

import accounting
import audit
import bandits
import dpcore

__all__ = ["accounting", "audit", "bandits", "dpcore"]
