import { spawnSync } from 'node:child_process';
import { expect, test } from 'vitest';
import * as exchange from '../../../../src/engine/redis/scripts/exchange.ts';
import * as gcra from '../../../../src/engine/redis/scripts/gcra.ts';
import * as inspect from '../../../../src/engine/redis/scripts/inspect.ts';
import * as members from '../../../../src/engine/redis/scripts/members.ts';
import * as reset from '../../../../src/engine/redis/scripts/reset.ts';
import type { Script } from '../../../../src/redis/script.ts';
import * as registry from '../../../../src/registry/shared/scripts.ts';
import { isMissing } from '../../../support/programs/program.ts';

const isScript = (value: unknown): value is Script => {
  return typeof value === 'object' && value !== null && 'sha1' in value;
};
const scripts = [exchange, gcra, inspect, members, reset, registry]
  .flatMap((module) => Object.values<unknown>(module))
  .filter(isScript);

const OPTIONS = [
  '-',
  ...['--std', 'lua51', '--read-globals', 'redis', 'struct', 'KEYS', 'ARGV'],
  // Of the files, which have names where the scripts have numbers, `test/tidy/lines.test.ts` checks it.
  ...['--no-max-line-length', '--formatter', 'plain', '--codes'],
];

/** What is unused in one script may be used in another that includes the same file. */
const UNUSED = /^\(W[23]\d\d\)/;

interface Warning {
  script: string;
  line: string;
  message: string;
}

function lint({ name, text }: Script): Warning[] {
  const { status, stdout, stderr } = spawnSync('luacheck', OPTIONS, {
    input: text,
    encoding: 'utf8',
  });
  // 3 and more: it could not run.
  expect([name, stderr, (status ?? 9) < 3]).toEqual([name, '', true]);
  const lines = text.split('\n');
  return [...stdout.matchAll(/^stdin:(\d+):\d+: (.*)$/gm)].map(([, number, message]) => {
    return { script: name, line: lines[Number(number) - 1].trim(), message };
  });
}

test.skipIf(isMissing('luacheck', '--version'))('luacheck finds no fault in a script', () => {
  expect(scripts.length).toBe(20);
  const warnings = scripts.flatMap(lint);
  const countLines = (line: string) => {
    const lines = scripts.flatMap(({ text }) => text.split('\n'));
    return lines.filter((other) => other.trim() === line).length;
  };
  const faults = warnings.filter(({ line, message }) => {
    if (!UNUSED.test(message)) return true;
    const same = warnings.filter((other) => other.line === line && isSame(other, message));
    return same.length === countLines(line);
  });
  expect(faults).toEqual([]);
});

/** Whether a warning is the same but for the number of a line in its text. */
function isSame({ message }: Warning, other: string): boolean {
  const textOf = (text: string) => text.replace(/ on line \d+/, '');
  return textOf(message) === textOf(other);
}
