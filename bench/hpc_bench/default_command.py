# SPDX-License-Identifier: Apache-2.0
"""A group of commands one of which needs no name."""

from __future__ import annotations

from typing import Any

import click


class DefaultCommandGroup(click.Group):
    """Takes the name of a command, else runs `default`, so that `hpc bench prefill --out FILE` needs none."""

    def __init__(self, *arguments: Any, default: str, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._default = default

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] in self.commands:
            return super().resolve_command(ctx, args)
        return self._default, self.commands[self._default], args

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.commands[self._default].format_options(ctx, formatter)
        self.format_commands(ctx, formatter)
