# SPDX-License-Identifier: Apache-2.0
"""The benchmark behind `hpc bench`: one command measures, one draws. See bench/README.md."""
