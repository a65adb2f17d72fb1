# SPDX-License-Identifier: Apache-2.0
"""The paper's evaluation as commands, `hpc bench paper NAME`: see docs/evaluation.md."""
