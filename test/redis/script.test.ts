import { describe, expect, it } from 'vitest';
import { composeLua } from '../../src/redis/script.ts';

describe('a script of Lua files', () => {
  it('has the text of the files that it includes, and those have that of theirs', () => {
    const files = { 'a.lua': '--#include b.lua\nlocal a = b\n', 'b.lua': 'local b = 1\n' };
    const text = 'if true then\n  --#include a.lua\n  return a\nend\n';
    expect(composeLua(text, files)).toBe(
      '#!lua\nif true then\nlocal b = 1\nlocal a = b\nreturn a\nend\n',
    );
  });

  it('cannot include a file that does not exist', () => {
    expect(() => composeLua('--#include a.lua\n')).toThrow('a.lua, which does not exist');
  });

  it('has no comments and no indentation, so the hash does not change with them', () => {
    const text = "-- One.\n\nreturn {\n  '--',\n  -- Two.\n}\n";
    expect(composeLua(text)).toBe("#!lua\nreturn {\n'--',\n}\n");
  });

  it('has the values of constants, but not in texts', () => {
    const constants = { PAUSE: 3, FIELD: 'a', CREATES: false, PAUSE_MAX: 5 };
    const text = "return CREATES and 'PAUSE' or FIELD .. PAUSE_MAX .. PAUSE\n";
    expect(composeLua(text, {}, constants)).toBe(
      "#!lua\nreturn false and 'PAUSE' or 'a' .. 5 .. 3\n",
    );
  });

  it('has the flags of its kind', () => {
    expect(composeLua('', {}, {}, { readsOnly: true })).toBe('#!lua flags=no-writes\n');
    expect(composeLua('', {}, {}, { allowsOom: true })).toBe('#!lua flags=allow-oom\n');
  });
});
