/** `weir print` without a server. */

import { describe, expect, test } from 'vitest';
import { EXIT } from '../../src/core/exit.ts';
import { grafanaDashboard } from '../../src/observe/grafana/dashboard.ts';
import { prometheusRules } from '../../src/observe/rules/prometheus-rules.ts';
import { callWeir } from '../support/weir-command.ts';

/** Without an address and a key of a server. */
const print = (...args: string[]) => {
  return callWeir('', ['print', ...args], { env: { WEIR_URL: undefined, WEIR_KEY: undefined } });
};
const printed = (stdout: string) => ({ code: EXIT.OK, stdout, stderr: '' });

describe('weir print', () => {
  test('lists the files that it can print', async () => {
    const { code, stdout } = await print();
    expect([code, stdout]).toEqual([EXIT.OK, expect.stringMatching(/^NAME +CONTENT\n/)]);
    expect(stdout).toMatch(/^prometheus-rules +recording rules/m);
    expect(stdout).toMatch(/^grafana +a dashboard/m);
  });

  test('prints the rules for Prometheus, and nothing else', async () => {
    expect(await print('prometheus-rules')).toEqual(printed(prometheusRules()));
  });

  test('prints the dashboard for Grafana, and nothing else', async () => {
    expect(await print('grafana')).toEqual(printed(grafanaDashboard()));
  });

  test('prints the rules for the job that --job names', async () => {
    const expected = printed(prometheusRules('monitoring/weir 2'));
    expect(await print('prometheus-rules', '--job', 'monitoring/weir 2')).toEqual(expected);
  });

  test.each<[string, string[], string]>([
    [
      'an unknown name',
      ['alerts'],
      '<name> must be one of prometheus-rules, grafana; got "alerts"\n',
    ],
    ['a mistyped one', ['grafan'], 'got "grafan"; did you mean grafana?\n'],
    ['the name of a method', ['constructor'], '<name> must be one of '],
    ['an empty name', [''], 'got ""\n'],
    ['two names', ['grafana', 'b'], '"b" is one argument too many for weir print\n'],
    [
      'a job that needs an escape',
      ['prometheus-rules', '--job', 'a"b'],
      '--job must have only letters, digits, spaces and the characters "_", "-", ".", ":" and' +
        ' "/"; got "a\\"b"\n',
    ],
    ['a job with a line break', ['prometheus-rules', '--job', 'a\nb'], '--job must have only'],
    ['an empty job', ['prometheus-rules', '--job', ''], '--job must have only'],
    ['a job for another file', ['grafana', '--job', 'a'], '--job is valid for prometheus-rules'],
    ['a job for the list', ['--job', 'a'], '--job is valid for prometheus-rules'],
    ['an unknown option', ['grafana', '--yaml'], '--yaml is not an option of weir print'],
  ])('prints one sentence for %s', async (_what, args, sentence) => {
    const { code, stdout, stderr } = await print(...args);
    expect([code, stdout, stderr]).toEqual([EXIT.USAGE, '', expect.stringContaining(sentence)]);
    expect(stderr).toMatch(/^weir: .*\n$/);
  });
});
