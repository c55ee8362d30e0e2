/**
 * `weir overrides`: what is done to overrides on a running server. What is printed is JSON, one
 * override a line, as an import takes it.
 */

import { isUtf8 } from 'node:buffer';
import { readFileSync } from 'node:fs';
import { describe } from '../describe.ts';
import { StartError } from '../errors.ts';
import { IMPORT_MAX_BYTES } from '../limits.ts';
import {
  durationOf,
  integerOf,
  printLine,
  readOptions,
  required,
  runSubcommand,
  type Subcommands,
} from './options.ts';
import { get, items, post } from './server.ts';

const USAGE = `\
weir overrides set <identifier> <namespace> --limit <tokens> --duration <window>
weir overrides get <identifier> <namespace>
weir overrides list <namespace>
weir overrides delete <identifier> <namespace>
weir overrides import <file, or - for standard input> [--dry-run]
weir overrides export

  <identifier>            text; * stands for any run of characters
  <namespace>             --namespace <name, or a pattern with *> or --namespace-id <id>
  --limit <tokens>        tokens in a window
  --duration <window>     90000 (ms), 90s, 15m, 1h, 30d
  --async                 the checks that it governs are asynchronous
  --dry-run               say what an import would do, and do nothing

An import has one override a line, as export prints them:

  {"namespaceName":"default","identifier":"user_*","limit":100,"duration":60000,"async":false}

All of them are set, in one step, or none. Overrides that are not in it stay as they are.
`;

const namespaceOptions = {
  namespace: { type: 'string' },
  'namespace-id': { type: 'string' },
} as const;

const SUBCOMMANDS: Subcommands = {
  set: async (args) => {
    const options = {
      ...namespaceOptions,
      limit: { type: 'string' },
      duration: { type: 'string' },
      async: { type: 'boolean' },
    } as const;
    const { values, positionals } = readOptions(args, options, ['identifier']);
    printLine(
      await post('ratelimits.setOverride', {
        ...namespaceOf(values),
        identifier: positionals[0],
        limit: integerOf('limit', required('limit', values.limit)),
        duration: durationOf('duration', required('duration', values.duration)),
        async: values.async,
      }),
    );
  },

  get: async (args) => {
    const { values, positionals } = readOptions(args, namespaceOptions, ['identifier']);
    const fields = { ...namespaceOf(values), identifier: positionals[0] };
    printLine(await get('ratelimits.getOverride', fields));
  },

  list: async (args) => {
    const { values } = readOptions(args, namespaceOptions);
    await printOverrides('ratelimits.listOverrides', namespaceOf(values));
  },

  delete: async (args) => {
    const { values, positionals } = readOptions(args, namespaceOptions, ['identifier']);
    const fields = { ...namespaceOf(values), identifier: positionals[0] };
    printLine(await post('ratelimits.deleteOverride', fields));
  },

  import: async (args) => {
    const options = { 'dry-run': { type: 'boolean' } } as const;
    const { values, positionals } = readOptions(args, options, ['file']);
    const { overrides, lines } = readLines(positionals[0]);
    const fields = { overrides, dryRun: values['dry-run'] };
    if (Buffer.byteLength(JSON.stringify(fields)) > IMPORT_MAX_BYTES) {
      throw new StartError(
        `an import has at most ${IMPORT_MAX_BYTES} bytes, and this has more: split the file`,
      );
    }
    try {
      printLine(await post('ratelimits.importOverrides', fields));
    } catch (error) {
      // The server knows the place in the list, the author of the file its line.
      const { message } = error as Error;
      throw new StartError(
        message.replace(/overrides\[(\d+)\]/, (_, index) => `line ${lines[Number(index)]}`),
      );
    }
  },

  export: async (args) => {
    readOptions(args, {});
    await printOverrides('ratelimits.exportOverrides', {});
  },
};

/** @returns the exit code */
export function overrides(args: readonly string[]): Promise<number> {
  return runSubcommand('overrides', SUBCOMMANDS, USAGE, args);
}

function namespaceOf(values: { namespace?: string; 'namespace-id'?: string }) {
  return { namespaceName: values.namespace, namespaceId: values['namespace-id'] };
}

async function printOverrides(operation: string, fields: Parameters<typeof get>[1]) {
  for await (const override of items(operation, 'overrides', fields)) printLine(override);
}

/** The overrides of a file, and the line of each. */
function readLines(path: string): { overrides: unknown[]; lines: number[] } {
  const bytes = readFileSync(path === '-' ? 0 : path);
  if (!isUtf8(bytes)) throw new StartError(`${path === '-' ? 'the input' : path} is not UTF-8`);
  const overrides: unknown[] = [];
  const lines: number[] = [];
  for (const [i, line] of bytes
    .toString()
    .replace(/^\ufeff/, '')
    .split('\n')
    .entries()) {
    if (line.trim() === '') continue;
    try {
      overrides.push(JSON.parse(line));
    } catch {
      throw new StartError(`line ${i + 1} is not JSON: ${describe(line)}`);
    }
    lines.push(i + 1);
  }
  return { overrides, lines };
}
