/** `weir blocks` on a running server. */

import { describe, expect, test } from 'vitest';
import { commandServer } from '../support/weir-command.ts';

const { weir, lines } = commandServer();
const TIME = /\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?Z/g;

describe('weir blocks', () => {
  test('blocks an identifier, lists the block and ends it', async () => {
    const check = ['check', 'bot*', '--limit', '5', '--duration', '30d', '--namespace', 'blocks'];
    expect((await weir(check)).code).toBe(0);
    const place = ['bot*', '--namespace', 'blocks'];
    const set = ['blocks', 'set', ...place, '--expires', '1h', '--reason', 'ticket 5512'];
    const { stdout } = await weir(set);
    expect(stdout.replace(TIME, 'T')).toBe(
      '"bot*" is blocked in the namespace "blocks" until T.\n',
    );
    expect((await weir(check)).code).toBe(1);
    const shown = (await weir(['blocks', 'list'])).stdout.replace(TIME, 'T').split('\n');
    expect(shown[0]).toMatch(/^NAMESPACE +IDENTIFIER +CREATED +EXPIRES +DENIED +REASON +ID$/);
    expect(shown[1]).toMatch(/^blocks +bot\* +T +T +1 +"?ticket 5512"? +rlor_[0-9a-f]{24}$/);
    const explained = await weir(['explain', ...place]);
    expect(explained.stdout.replace(TIME, 'T')).toContain(
      'Blocked until T, reason "ticket 5512". No override applies until then.',
    );
    const audited = (await weir(['audit', 'list', '--limit', '1'])).stdout.replace(TIME, 'T');
    expect(audited).toMatch(/block\.create .* blocks "bot\*" +expires=T reason="ticket 5512"/);
    const ended = await weir(['blocks', 'delete', ...place]);
    expect(ended.stdout).toBe('"bot*" is not blocked any more in the namespace "blocks".\n');
    expect(await lines(['blocks', 'list'])).toEqual([]);
    expect((await weir(check)).code).toBe(0);
    const again = await weir(['blocks', 'delete', ...place]);
    expect([again.code, again.stderr]).toEqual([
      4,
      expect.stringContaining('"bot*" is not blocked in that namespace'),
    ]);
  });

  test('needs an end, and a namespace that exists', async () => {
    const missing = await weir(['blocks', 'set', 'a', '--namespace', 'blocks']);
    expect([missing.code, missing.stderr]).toEqual([
      2,
      expect.stringContaining('--expires is required'),
    ]);
    const unknown = await weir(['blocks', 'set', 'a', '--namespace', 'no', '--expires', '1h']);
    expect([unknown.code, unknown.stderr]).toEqual([
      4,
      expect.stringContaining('there is no namespace "no"'),
    ]);
  });
});
