/** What the commands say about command lines and settings that they cannot use. */

import { createServer } from 'node:http';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { EXIT } from '../../src/core/exit.ts';
import { listen } from '../support/http.ts';
import { callWeir, commandServer } from '../support/weir-command.ts';

const commands = commandServer();
/** The words of a command line; '' is an empty one. */
const wordsOf = (line: string) => line.split(' ').map((word) => (word === "''" ? '' : word));
const weir = (line: string, env = {}) => commands.weir(wordsOf(line), env);

const GOOD = 'check a --limit 1 --duration 1s';
const EXPLAIN = 'explain a --namespace cli';
const TOP = 'top --interval 100ms';
const RUN = 'run --concurrency 1 --identifier a';

/** A command line, and the sentence about it, or a part of the sentence. */
const WRONG: [line: string, message: string][] = [
  ['sevre', '"sevre" is not a command of weir; did you mean serve?'],
  ['overides list', '"overides" is not a command of weir; did you mean overrides?'],
  ['frobnicate', '"frobnicate" is not a command of weir; weir help lists them\n'],
  ['help key', '"key" is not a command of weir; did you mean keys?'],
  ['constructor', '"constructor" is not a command of weir; weir help lists them\n'],
  ['keys lst', '"lst" is not a command of weir keys; did you mean list?'],
  ['keys --url', '"--url" is not a command of weir keys; it must be one of create, list,'],
  ['keys', 'weir keys needs a subcommand: one of create, list, revoke; see weir help keys\n'],
  [
    'namespaces',
    'weir namespaces needs a subcommand: one of list, delete; see weir help namespaces\n',
  ],
  ['version --json', '--json is not an option of weir version'],
  ['--version foo', '"foo" is one argument too many for weir version'],
  ['help keys foo', '"foo" is one argument too many for weir help'],
  ['help keys list foo', '"foo" is one argument too many for weir help'],
  ['help version foo', '"foo" is one argument too many for weir help'],
  ['help serve foo', '"foo" is one argument too many for weir help'],
  ['help help foo', '"foo" is one argument too many for weir help'],
  [
    'check -user',
    '-user is not an option of weir check; put an identifier that begins with "-" af',
  ],
  ['reset -u', '-u is not an option of weir reset; put an identifier that begins with "-"'],
  ['keys revoke -k=1', '-k is not an option of weir keys revoke; put a keyId that begins'],
  ['keys list -u', 'weir: -u is not an option of weir keys list; see weir help keys\n'],
  [
    'inspect a --frobnicate',
    '--frobnicate is not an option of weir inspect; see weir help inspect\n',
  ],
  ['ps', '"ps" is not a command of weir; weir help lists them\n'],
  ['gateway ngnix', 'istio, apisix, express, fastify; got "ngnix"; did you mean nginx?\n'],
  [
    'check a --limit -5 --duration 1s',
    '--limit must be an integer from 1 to 9007199254740991; got "-5"',
  ],
  ['check a -limit 1', '-limit is not an option of weir check; did you mean --limit?'],
  ['keys list --tiemout 1s', '--tiemout is not an option of weir keys list; did you'],

  ['check --limit 1 --duration 1s', '<identifier> is required'],
  ["check '' --limit 1", '<identifier> is empty: add --empty-identifier to allow that'],
  ['check a b --limit 1 --duration 1s', '"b" is one argument too many'],
  [`${GOOD} --algorithm GCRA`, '--algorithm must be fixed, sliding or gcra; got "GCRA"'],
  [`${GOOD} --burst 1`, '--burst must be left out unless there is --algorithm gcra; got no --alg'],
  [
    `${GOOD} --algorithm fixed --burst 1`,
    'unless there is --algorithm gcra; got --algorithm fixed',
  ],
  [`${GOOD} --algorithm gcra --burst 2`, '--burst must be an integer from 1 to 1; got "2"'],
  ['check a --duration 1s', '--limit is required'],
  ['check a --limit 1', '--duration is required'],
  [
    'check a --limit 0 --duration 1s',
    '--limit must be an integer from 1 to 9007199254740991; got "0"',
  ],
  ['check a --limit 9007199254740992 --duration 1s', '; got "9007199254740992"'],
  ['check a --limit --duration 1s', '--limit needs a value: <tokens>'],
  [`${GOOD} --async=1`, '--async takes no value'],
  [
    'check a --limit 1 --duration 1x',
    '--duration must be a duration such as 90000 (milliseconds),',
  ],
  ['check a --limit 1 --duration 60', '; got 60, which is 60 ms: for seconds write 60s'],
  [`${GOOD} --url a`, '--url must be a URL such as'],
  [`${GOOD} --timeout 1h`, '--timeout must be from 1ms to 5m; got "1h"'],
  [`${GOOD} --timeout 5`, '--timeout must be a duration with a unit, such as 500ms or 5s; got "5"'],

  ['explain', '<identifier> is required'],
  ['explain a --limit 5 --duration 60s', '--limit is for the check in one namespace'],
  ['explain a b c', '"c" is one argument too many'],
  ['explain a b --namespace cli', '"b" is one argument too many for weir explain'],
  ["explain '' --namespace cli", '<identifier> is empty'],
  [`${EXPLAIN} --burst 2`, '--burst must be left out'],
  [`${EXPLAIN} --limit 5`, '--duration is required with --limit: a check has both'],
  [`${EXPLAIN} --duration 5s`, '--limit is required with --duration'],
  [`${EXPLAIN} --limit 0 --duration 5s`, '--limit must be an integer from 1'],

  ['inspect', '<identifier> is required'],
  ['inspect a --duration 1y', '--duration must'],
  ['reset', 'weir: <identifier> is required; usage: weir reset <identifier> [options]\n'],
  ['reset a b', 'weir: "b" is one argument too many for weir reset; usage: weir reset <ident'],
  ['keys list a', '"a" is one argument too many for weir keys list; usage: weir keys list\n'],
  ["reset ''", '<identifier> is empty: add --empty-identifier to allow that\n'],
  ['reset a --duration 1y', '--duration must'],
  ['reset a --algorithm all', '--algorithm must be fixed, sliding or gcra; got "all"'],

  ['reserve a --limit 1 --duration 1s --ttl 1s', '--cost is required'],
  ['reserve a --limit 1 --duration 1s --cost 1', '--ttl is required'],
  ['commit --cost 1', '<reservationId> is required'],
  ['commit rlrs_1', '--cost is required'],
  ['cancel', '<reservationId> is required'],
  ['acquire a --ttl 1s', '--limit is required'],
  ["acquire '' --limit 1 --ttl 1s", '<identifier> is empty'],
  ['acquire a --limit 1 --ttl 1s --cost 0', '--cost must be an integer from 1 to'],
  ['renew rlls_1', '--ttl is required'],
  ['renew rlls_1 --ttl 30', '; got 30, which is 30 ms: for seconds write 30s'],
  ['renew rlls_1 --ttl 25h', '--ttl must be from 1s to 24h; got "25h"'],
  ['release', '<leaseId> is required'],
  ['holds', 'weir holds needs a subcommand: end; see weir help holds\n'],
  ['holds end a', '<handle> is required'],
  ["holds end '' 1c-09f3", '<identifier> is empty'],
  ['run --concurrency 1 --identifier a', '<command> is required, at the end, after "--"'],
  ['run --concurrency 1 --identifier a --', '<command> is required, at the end, after "--"'],
  ['run --concurrency 1 --identifier a b -- c', '"b" is one argument too many for weir run'],
  ['run --concurrency 1 -- a', '--identifier is required'],
  ["run --concurrency 1 --identifier '' -- a", '--identifier must not be empty'],
  ['run --identifier a -- a', '--concurrency is required'],
  ['run --concurrency 0 --identifier a -- a', '--concurrency must be an integer from 1 to'],
  [`${RUN} --wait 5 -- a`, '--wait must be a duration with a unit, such as 500ms or 5s; got "5"'],
  [`${RUN} --ttl 1ms -- a`, '--ttl must be from 1000ms to 86400000ms; got "1ms"'],
  [`${RUN} --json -- a`, '--json is not an option of weir run'],

  ['keys create --permission *', 'weir: --name is required; usage: weir keys create '],
  ['keys create --name k', 'weir: --role or --permission is required\n'],
  [
    'keys create --name k --permission * --expires 2001-01-31',
    'weir: --expires must be in the future; got "2001-01-31"\n',
  ],
  [
    'keys create --name k --permission * --expires soon',
    'weir: --expires must be a duration from now such as 90s, 15m, 1h or 30d, or a date such as' +
      ' 2030-01-31, 2030-01-31T12:00:00Z or 2030-01-31T12:00:00+02:00; got "soon"\n',
  ],
  ['audit list --limit 0', '--limit must be an integer from 1 to 9007199254740991; got "0"\n'],

  ['stats --by hour', '--by is only for one namespace: add <namespace>'],
  ['stats login --by day', '--by must be minute or hour; got "day"'],
  ['stats login --by minute --last 26h', '--last must be from 1m to 25h; got "26h"'],
  ['stats login --last 5s', '--last must be from 60s to'],
  ['stats --last 30m', '--last must be from 60m to 44640m; got "30m"'],
  ['stats --prefix a --last 2h', '--last is not for --prefix: a search covers 24 hours'],
  ["stats --prefix ''", '--prefix is empty: it must have at least 1 character'],
  ['stats --limit 0', '--limit must be an integer from 1 to 1000; got "0"'],
  ['stats login --limit 101', '--limit must be an integer from 1 to 100; got "101"'],
  ["stats ''", '<namespace> must have from 1 to 512 characters; got 0'],
  ['top --interval 5', '--interval must be a duration with a unit'],
  ['top --interval 1ms', '--interval must be from 100ms to 3600000ms; got "1ms"'],
  ['top --count 0', '--count must be an integer from 1 to'],

  ['config', 'weir config needs a subcommand'],
  ['config chekc', '"chekc" is not a command of weir config; did you mean check?'],
  ['config check a b', '"b" is one argument too many for weir config check'],
  ['config check --jsn', '--jsn is not an option of weir config check'],
  ['config check nowhere.json', 'nowhere.json (--config) cannot be read: no such file'],

  ['print alerts', '<name> must be one of prometheus-rules, grafana; got "alerts"\n'],
  ['print grafan', 'got "grafan"; did you mean grafana?\n'],
  ['print constructor', '<name> must be one of '],
  ["print ''", 'got ""\n'],
  [
    'print grafana b',
    '"b" is one argument too many for weir print; usage: weir print [<name>] [opt',
  ],
  [
    'print prometheus-rules --job a"b',
    '--job must have only letters, digits, spaces and the characters "_", "-", ".", ":" and' +
      ' "/"; got "a\\"b"\n',
  ],
  ['print prometheus-rules --job a\nb', '--job must have only'],
  ["print prometheus-rules --job ''", '--job must have only'],
  ['print grafana --job a', '--job is valid for prometheus-rules'],
  ['print --job a', '--job is valid for prometheus-rules'],
  ['print grafana --yaml', '--yaml is not an option of weir print'],

  ['health --wait 30', '--wait must be a duration with a unit'],
  ['health --url weir', '--url must be a URL such as http://127.0.0.1:7071; got "weir"'],
];

test.each(WRONG)('weir %s: one sentence, and nothing is done', async (line, message) => {
  const { code, stdout, stderr } = await weir(line);
  expect([code, stdout, stderr]).toEqual([EXIT.USAGE, '', expect.stringContaining(message)]);
  expect(stderr).toMatch(/^(weir: |\{).*\n$/);
});

const NOWHERE = 'http://127.0.0.1:2';
const SETTINGS: [string, Record<string, string | undefined>, number, string, string][] = [
  [GOOD, { WEIR_KEY: undefined }, EXIT.USAGE, 'USAGE', 'WEIR_KEY is not set: set it to an API'],
  [GOOD, { WEIR_KEY: '' }, EXIT.USAGE, 'USAGE', 'WEIR_KEY is not set'],
  [GOOD, { WEIR_URL: '' }, EXIT.USAGE, 'USAGE', '; got ""'],
  [
    GOOD,
    { WEIR_URL: 'localhost:7070' },
    EXIT.USAGE,
    'USAGE',
    'WEIR_URL must be a URL such as http',
  ],
  [GOOD, { WEIR_URL: 'http://a:7070/?a' }, EXIT.USAGE, 'USAGE', 'WEIR_URL must be a URL such as'],
  [
    'health',
    { WEIR_ADMIN_PORT: '0' },
    EXIT.USAGE,
    'USAGE',
    'WEIR_ADMIN_PORT is 0, which selects a',
  ],
  ['health', { WEIR_ADMIN_PORT: 'x' }, EXIT.USAGE, 'USAGE', 'WEIR_ADMIN_PORT must be'],
  [
    GOOD,
    { WEIR_URL: NOWHERE },
    EXIT.NO_ANSWER,
    'NO_ANSWER',
    `no response from ${NOWHERE} (WEIR_URL): connect ECONNREFUSED 127.0.0.1:2`,
  ],
  [TOP, { WEIR_URL: NOWHERE }, EXIT.NO_ANSWER, 'NO_ANSWER', 'no response from'],
  [GOOD, { WEIR_KEY: 'x' }, EXIT.SERVER_ERROR, 'UNAUTHORIZED', ''],
  [TOP, { WEIR_KEY: 'x' }, EXIT.SERVER_ERROR, 'UNAUTHORIZED', ''],
  [
    `${GOOD} --namespace ''`,
    {},
    EXIT.SERVER_ERROR,
    'BAD_REQUEST',
    '--namespace must be a text of 1',
  ],
  ...[
    'explain a --namespace mistyped',
    'inspect a --namespace mistyped',
    'stats mistyped',
    'top mistyped',
  ].map((line): (typeof SETTINGS)[number] => {
    return [line, {}, EXIT.SERVER_ERROR, 'NOT_FOUND', 'there is no namespace "mistyped"'];
  }),
];

test.each(SETTINGS)('weir %s with %j ends with %i %s', async (line, env, exit, error, message) => {
  const { code, stdout, stderr } = await weir(line, env);
  const shown = exit === EXIT.SERVER_ERROR ? `weir: ${error}: ` : 'weir: ';
  expect([code, stdout, stderr]).toEqual([exit, '', expect.stringContaining(message)]);
  expect(stderr.startsWith(shown)).toBe(true);
  expect(stderr.trim().split('\n').length).toBe(1);
  if (line.startsWith('top')) return;
  const json = await weir(`${line} --json`, env);
  expect([json.code, json.stdout, JSON.parse(json.stderr)]).toEqual([
    ...[exit, ''],
    { error: { code: error, message: expect.stringContaining(message) } },
  ]);
});

test('no command shows the key, or the password of a URL', async () => {
  for (const key of ['secret\nkey', 'sécret', 'a'.repeat(513)]) {
    const { code, stderr } = await weir(GOOD, { WEIR_KEY: key });
    const sentence = 'weir: WEIR_KEY must be an API key, 1 to 512 visible ASCII characters\n';
    expect([code, stderr]).toEqual([EXIT.USAGE, sentence]);
  }
  const { code, stderr } = await weir(GOOD, { WEIR_URL: 'http://user:secret@127.0.0.1:7070' });
  expect([code, stderr]).toEqual([EXIT.USAGE, expect.stringContaining('WEIR_URL must not')]);
  expect(stderr).not.toContain('secret');
});

describe('a response that is not from weir', () => {
  let [url, body, status] = ['', '', 200];
  const other = createServer((_request, response) => response.writeHead(status).end(body));
  beforeAll(async () => {
    url = `http://127.0.0.1:${await listen(other)}`;
  });
  afterAll(() => other.close());

  const set = 'overrides set a --namespace n --limit 1 --duration 1s';
  test.each([
    [200, '<html>', GOOD],
    [200, '{"success":true}', GOOD],
    [200, 'null', GOOD],
    // An error response of a proxy in front of weir.
    [502, '{"error":"bad gateway"}', GOOD],
    [200, '{"overrides":5}', 'overrides list --namespace n'],
    [200, '{}', 'keys list'],
    [200, '{"keys":[{}]}', 'keys list'],
    [200, '{"policies":[{}]}', 'policies list'],
    [200, '{"overrides":[{}]}', 'overrides list'],
    [200, '3', 'keys revoke key_1'],
    [200, '{"keyId":"key_1"}', 'keys create --name k --permission *'],
    [200, '{"cleared":"all"}', 'reset a'],
    [200, '{"success":true}', 'reserve a --limit 1 --duration 1s --cost 1 --ttl 1s'],
    [200, '{"success":true}', 'commit rlrs_1 --cost 1'],
    [200, '{"released":"all"}', 'cancel rlrs_1'],
    [200, '{"success":true}', 'acquire a --limit 1 --ttl 1s'],
    [200, '{"success":true}', 'renew rlls_1 --ttl 1s'],
    [200, '{}', 'release rlls_1'],
    [200, '{}', 'holds end a 1c-09f3'],
    [200, '{}', `${RUN} -- true`],
    [200, '{"counters":5}', 'inspect a'],
    [200, '{"counters":[{}]}', 'inspect a'],
    [200, '{"data":{}}', set],
    [200, '{"overrideId":"rlor_1"}', set],
    [200, '{"created":1}', 'overrides import -'],
  ])('%i %s is rejected by weir %s', async (responseStatus, text, line) => {
    [status, body] = [responseStatus, text];
    const { code, stderr } = await callWeir(url, wordsOf(line));
    const message = `sent a response with status ${status} that is not from weir`;
    expect([code, stderr]).toEqual([EXIT.NO_ANSWER, expect.stringContaining(message)]);
  });
});
