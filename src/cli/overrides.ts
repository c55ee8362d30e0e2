/** `weir overrides`: overrides on a running server, and their import and export. */

import { StartError } from '../errors.ts';
import { IMPORT_MAX_BYTES } from '../limits.ts';
import { CODES, type Command, part, printLines } from './command.ts';
import { linesOf } from './lines.ts';
import {
  durationOf,
  durationText,
  integerOf,
  namespaceOf,
  required,
  WINDOW_OPTION,
} from './options.ts';
import { cell, counted, quoted } from './output.ts';
import { ServerError } from './server.ts';

const NAMESPACE = {
  namespace: { type: 'string', value: '<name>', help: 'a name, a pattern with *, or an id' },
  'namespace-id': { type: 'string', value: '<id>', help: 'the same, for ids only' },
} as const;

interface Override {
  id: string;
  identifier: string;
  limit: number;
  duration: number;
  async: boolean;
}

const HEADER = ['IDENTIFIER', 'LIMIT', 'DURATION', 'ASYNC', 'ID'];
const row = ({ identifier, limit, duration, async, id }: Override) => {
  return [cell(identifier), `${limit}`, durationText(duration), async ? 'yes' : 'no', id];
};

const set = part({
  usage: '<identifier> --namespace <name> --limit <tokens> --duration <duration>',
  words: ['identifier'],
  options: {
    ...NAMESPACE,
    limit: { type: 'string', value: '<tokens>', help: 'tokens in a window; 0 denies every check' },
    duration: WINDOW_OPTION,
    async: { type: 'boolean', help: 'the checks that it governs are asynchronous' },
  },
  run: async (call) => {
    const { values, words } = call;
    const namespace = namespaceOf(values);
    const override = {
      identifier: needed(words[0]),
      limit: integerOf('limit', required('limit', values.limit)),
      duration: durationOf('duration', required('duration', values.duration)),
    };
    const server = call.server();
    const answer = await server.postV2<{ overrideId: string }>('ratelimit.setOverride', {
      namespace: namespace.text,
      ...override,
    });
    const { overrideId } = answer;
    if (typeof overrideId !== 'string') throw server.notWeir(200);
    if (values.async) {
      // Only an import takes the range of v2 and says async; the override keeps its id.
      const overrides = [{ ...namespace.fields, ...override, async: true }];
      await server.post('ratelimits.importOverrides', { overrides });
    }
    const tokens = counted(override.limit, 'token');
    call.print(answer, () => {
      const what = `${tokens} per ${durationText(override.duration)} for ${quoted(words[0])}`;
      const place = `in the namespace ${quoted(namespace.text)}`;
      const kind = values.async ? ', asynchronous' : '';
      return `Override ${overrideId} is set ${place}: ${what}${kind}.`;
    });
    return undefined;
  },
});

const get = part({
  usage: '<identifier> --namespace <name>',
  words: ['identifier'],
  options: NAMESPACE,
  run: async (call) => {
    const fields = { ...namespaceOf(call.values).fields, identifier: needed(call.words[0]) };
    const server = call.server();
    const found = async function* () {
      yield await server.get<object>('ratelimits.getOverride', fields);
    };
    await call.printList(found(), HEADER, row);
    return undefined;
  },
});

const list = part({
  usage: '--namespace <name>',
  options: NAMESPACE,
  run: async (call) => {
    const { fields } = namespaceOf(call.values);
    const items = call.server().items('ratelimits.listOverrides', 'overrides', fields);
    await call.printList(items, HEADER, row);
    return undefined;
  },
});

const remove = part({
  usage: '<identifier> --namespace <name>',
  words: ['identifier'],
  options: NAMESPACE,
  run: async (call) => {
    const identifier = needed(call.words[0]);
    const namespace = namespaceOf(call.values);
    const fields = { ...namespace.fields, identifier };
    const answer = await call.server().post<object>('ratelimits.deleteOverride', fields);
    call.print(answer, () => {
      const place = `in the namespace ${quoted(namespace.text)}`;
      return `The override of ${quoted(identifier)} ${place} is deleted.`;
    });
    return undefined;
  },
});

interface Counts {
  created: number;
  updated: number;
  unchanged: number;
}

const load = part({
  usage: '<file, or - for standard input> [--dry-run]',
  words: ['file'],
  options: { 'dry-run': { type: 'boolean', help: 'say what an import would change' } },
  run: async (call) => {
    const dryRun = call.values['dry-run'] ?? false;
    const { items, lines } = linesOf(call.words[0]);
    const fields = { overrides: items, dryRun };
    const bytes = Buffer.byteLength(JSON.stringify(fields));
    if (bytes > IMPORT_MAX_BYTES) {
      throw new StartError(
        `an import must have at most ${IMPORT_MAX_BYTES} bytes; got ${bytes}: split the file`,
      );
    }
    const server = call.server();
    let answer: Counts;
    try {
      answer = await server.post<Counts>('ratelimits.importOverrides', fields);
    } catch (error) {
      if (!(error instanceof ServerError)) throw error;
      // The server knows the place in the list, the author of the file its line.
      const { code, message } = error;
      const place = /^overrides\[(\d+)\]/;
      throw new ServerError(
        code,
        message.replace(place, (_, i) => `line ${lines[Number(i)]}`),
      );
    }
    const { created, updated, unchanged } = answer;
    if (!Number.isInteger(created + updated + unchanged)) throw server.notWeir(200);
    call.print(answer, () => {
      const counts = `${created} created, ${updated} updated, ${unchanged} unchanged`;
      return dryRun ? `An import would give: ${counts}.` : `Imported: ${counts}.`;
    });
    return undefined;
  },
});

const dump = part({
  usage: '> <file>',
  run: async (call) => {
    await printLines(call.server().items('ratelimits.exportOverrides', 'overrides'));
    return undefined;
  },
});

/** No override has an empty identifier. */
function needed(identifier: string): string {
  if (identifier !== '') return identifier;
  throw new StartError('<identifier> must have 1 to 512 characters; got ""');
}

export const overrides: Command = {
  parts: { set, get, list, delete: remove, import: load, export: dump },
  notes: `
An identifier may be a pattern: * stands for any run of characters. export prints JSON, one override
per line, for all namespaces, and import takes the same:

  {"namespaceName":"default","identifier":"user_*","limit":100,"duration":60000,"async":false}

An import sets all of its overrides in one step, or none. Overrides that it does not name stay.
`,
  examples: [
    "weir overrides set 'user_*' --namespace default --limit 100 --duration 60s",
    'weir overrides list --namespace default --json',
    'weir overrides export > overrides.jsonl',
    'weir overrides import overrides.jsonl --dry-run',
  ],
  codes: CODES,
};
