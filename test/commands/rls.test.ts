/** `weir rls`: the validation of configuration files, and which rules descriptors match. */

import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { removeDirectory, temporaryDirectory } from '../support/server.ts';
import { callWeir } from '../support/weir-command.ts';

const directory = temporaryDirectory();
afterAll(() => removeDirectory(directory));

const weir = (...args: string[]) => {
  const env = { WEIR_URL: undefined, WEIR_KEY: undefined };
  return callWeir('', ['rls', ...args], { env, cwd: directory });
};

/** Writes a folder with files. */
function writeFolder(name: string, ...texts: string[]): string {
  mkdirSync(join(directory, name));
  for (const [i, text] of texts.entries()) writeFileSync(join(directory, name, `${i}.yaml`), text);
  return name;
}

const WEB = `domain: web
descriptors:
- key: path
  descriptors:
  - key: ip
    rate_limit: { unit: minute, requests_per_unit: 20, name: per-ip }
  - key: ip
    value: 10.*
    rate_limit: { unit: hour, unit_multiplier: 2, requests_per_unit: 1, algorithm: gcra, burst: 1 }
- key: user
  shadow_mode: true
  rate_limit: { unit: day, requests_per_unit: 5, algorithm: sliding, replaces: [{ name: per-ip }] }
- key: free
  rate_limit: { unlimited: true }
- key: open
`;
const valid = writeFolder('valid', WEB, 'domain: other');
const check = (...args: string[]) => weir('check', valid, '--domain', 'web', ...args);

describe('weir rls validate', () => {
  test('prints the number of files, domains and rules', async () => {
    expect(await weir('validate', valid)).toEqual({
      code: 0,
      stdout: 'valid is valid: 2 files, 2 domains, 6 rules\n',
      stderr: '',
    });
    const { stdout } = await weir('validate', valid, '--json');
    const counts = { files: 2, domains: 2, rules: 6, warnings: [] };
    expect(JSON.parse(stdout)).toEqual({ ok: true, folder: valid, ...counts });
  });

  test('prints warnings, and exits with 0', async () => {
    const rule = '- {key: k, value: "*", shadow_mode: true}';
    const folder = writeFolder('warned', `domain: d\ndescriptors:\n${rule}`);
    const message = `${folder}/0.yaml:3: "shadow_mode" has no effect without "rate_limit"`;
    const { code, stdout, stderr } = await weir('validate', folder);
    expect([code, stderr]).toEqual([0, `weir: warning: ${message}\n`]);
    expect(stdout).toBe('warned is valid: 1 file, 1 domain, 1 rule\n');
    const json = await weir('validate', folder, '--json');
    expect([json.stderr, JSON.parse(json.stdout).warnings]).toEqual(['', [message]]);
  });

  test('prints the first error with its file and line, and exits with 2', async () => {
    const folder = writeFolder(
      'wrong',
      'domain: d',
      'domain: e\ndescriptors:\n- key: k\n  limit: 1',
    );
    const message =
      `${folder}/1.yaml:4: "limit" is not a field of an element of "descriptors"; the fields are` +
      ' key, value, rate_limit, descriptors, shadow_mode, quota_mode, detailed_metric,' +
      ' value_to_metric, share_threshold, metadata';
    const result = await weir('validate', folder);
    expect(result).toEqual({ code: 2, stdout: '', stderr: `weir: ${message}\n` });
    const json = await weir('validate', folder, '--json');
    expect(json.code).toBe(2);
    expect(JSON.parse(json.stderr)).toEqual({ error: { code: 'USAGE', message } });
    const missing = await weir('validate', 'missing');
    expect([missing.code, missing.stderr]).toEqual([
      2,
      'weir: missing cannot be read: no such file or directory; it must be a folder with YAML files\n',
    ]);
  });

  test('reads the files in the mode of its options', async () => {
    const same = writeFolder('same', 'domain: d', 'domain: d');
    expect((await weir('validate', same)).stderr).toMatch('unless domains are merged; got "d"');
    expect((await weir('validate', same, '--merge-domains')).code).toBe(0);
    const loose = writeFolder(
      'loose',
      'domain: d\ndescriptors: [{key: k, rate_limit: {unit: day}}]',
    );
    expect((await weir('validate', loose)).stderr).toMatch('"requests_per_unit" is required');
    expect((await weir('validate', loose, '--compatible')).code).toBe(0);
  });
});

describe('weir rls check', () => {
  test('prints the rule of a descriptor, its limit and identifier, and the other rules', async () => {
    const { code, stdout, stderr } = await check('--descriptor', 'path=/a|b,ip=10.1');
    expect([code, stderr]).toEqual([0, '']);
    expect(stdout.split('\n')).toEqual([
      'Descriptor 1: path=/a|b, ip=10.1',
      'Rule: "web.path.ip_10.*" (valid/0.yaml:7)',
      'Limit: 1 request in 2h, gcra with a burst of 1',
      'Identifier: path=/a%7Cb|ip=10.1',
      'Metrics: web.path.ip_10.*',
      'Other rules: 4. Those that have the key or match too:',
      'ENTRY  RULE         POSITION        WHY IT DOES NOT APPLY',
      '2      web.path.ip  valid/0.yaml:5  a rule with the value comes first',
      '',
    ]);
  });

  test('says how descriptors of one request replace the limits of each other', async () => {
    const { stdout } = await check('--descriptor', 'path=a,ip=::1', '--descriptor', 'user=7');
    const [first, second] = stdout.split('\n\n');
    expect(first).toContain('Limit: 20 requests per minute, fixed window; name "per-ip"\n');
    expect(first).toContain(
      'The limit of descriptor 2 replaces this one. The descriptor is allowed,',
    );
    expect(second).toContain(
      'Limit: 5 requests per day, sliding window; shadow mode: never denied\n' +
        'Replaces the limits with the names "per-ip".\n',
    );
  });

  test('says why a descriptor is not counted', async () => {
    const free = 'The descriptor is allowed, and not counted.';
    const about = async (entries: string) => (await check('--descriptor', entries)).stdout;
    expect(await about('free=1')).toContain('Limit: unlimited: allowed, and not counted\nOther ru');
    expect(await about('open=1')).toContain(
      `Limit: none. ${free}\nOther rules: 3, all of other key`,
    );
    expect(await about('x=1')).toContain(`No rule matches entry 1 of 1. ${free}`);
    expect(await about('user=1,x=1')).toContain(
      'No rule matches entry 2 of 2: the rule "web.user" (valid/0.yaml:10) has no rules under it.',
    );
    expect(await about('path=1,x=1')).toContain(
      'the rule "web.path" (valid/0.yaml:3) has none that matches under it.',
    );
  });

  test('accepts a comma in a value after a backslash, and the sign = in it', async () => {
    const { stdout } = await check('--descriptor', 'user=a\\,b=c', '--json');
    const [{ entries, identifier }] = JSON.parse(stdout).descriptors;
    expect(entries).toEqual([{ key: 'user', value: 'a,b=c' }]);
    expect(identifier).toBe('user=a,b%3Dc');
  });

  test('prints one JSON object with --json', async () => {
    const { stdout } = await check('--descriptor', 'user=7', '--descriptor', 'free=1', '--json');
    expect(JSON.parse(stdout)).toEqual({
      domain: 'web',
      descriptors: [
        {
          entries: [{ key: 'user', value: '7' }],
          matchedEntries: 1,
          rule: { path: 'web.user', position: 'valid/0.yaml:10' },
          limit: {
            requestsPerUnit: 5,
            duration: 86_400_000,
            algorithm: 'sliding',
            replaces: ['per-ip'],
            shadow: true,
            quota: false,
          },
          identifier: 'user=7',
          metricPath: 'web.user',
          others: [],
          otherRules: 3,
        },
        {
          entries: [{ key: 'free', value: '1' }],
          matchedEntries: 1,
          rule: { path: 'web.free', position: 'valid/0.yaml:13' },
          limit: { unlimited: true, replaces: [], shadow: false, quota: false },
          others: [],
          otherRules: 3,
        },
      ],
    });
  });

  test('compares as envoyproxy/ratelimit with --compatible', async () => {
    const folder = writeFolder('joined', 'domain: d\ndescriptors: [{key: a_b, value: c}]');
    const args = ['check', folder, '--domain', 'd', '--descriptor', 'a=b_c'];
    expect((await weir(...args)).stdout).toContain('No rule matches entry 1 of 1.');
    expect((await weir(...args, '--compatible')).stdout).toContain('Rule: "d.a_b_c"');
  });

  test.each([
    [['--descriptor', 'a=1'], '--domain is required'],
    [['--domain', 'web'], '--descriptor is required'],
    [
      ['--domain', 'x', '--descriptor', 'a=1'],
      '--domain must be a domain of the files: web, other;',
    ],
    [
      ['--domain', 'web', '--descriptor', 'a'],
      '--descriptor must be entries such as key=value,key',
    ],
    [
      ['--domain', 'web', '--descriptor', '=1'],
      '--descriptor must be entries such as key=value,ke',
    ],
    [
      ['--domain', 'web', '--descriptor', ''],
      '--descriptor must be entries such as key=value,key=',
    ],
  ])('with %j prints what is wrong, and exits with 2', async (args, message) => {
    const { code, stdout, stderr } = await weir('check', valid, ...args);
    expect([code, stdout, stderr.startsWith(`weir: ${message}`)]).toEqual([2, '', true]);
  });
});
