/** What src and tools export, and nothing but tests uses. */

import { dirname, join } from 'node:path';
import { expect, test } from 'vitest';
import { code, luaFiles, manifest, sources, tools, withoutComments } from './files.ts';

/** Declared for later, with the reason. */
const WAITING: Record<string, string> = {
  'Engine.decideEach': 'a transport that asks for several decisions, as Envoy does, will call it',
};

const texts = new Map(code.map(({ path, text }) => [path, withoutComments(text)] as const));
const product = [...sources, ...tools].map(({ path }) => path);
/** Applications import these. */
const published = Object.keys(manifest.exports).map((name) => join('src/middleware', `${name}.ts`));

/** The names that a file imports or exports again, each as `<file>: <name>`. */
function importedBy(path: string): string[] {
  const text = texts.get(path)!;
  const lists = text.matchAll(/(?:import|export) (?:type )?\{([^}]*)\} from '(\.[^']+)'/g);
  const loaded = text.matchAll(/\{([^{}]*)\} = await import\('(\.[^']+)'\)/g);
  const members = text.matchAll(/import\('(?<to>\.[^']+)'\)\)?\s*\.(?<names>\w+)/g);
  const wholes = [...text.matchAll(/import \* as (\w+) from '(\.[^']+)'/g)].map(([, as, to]) => {
    const names = [...text.matchAll(new RegExp(`\\b${as}\\.(\\w+)`, 'g'))].map(([, name]) => name);
    return ['', names.join(), to];
  });
  const ofMembers = [...members].map(({ groups = {} }) => ['', groups.names, groups.to]);
  return [...lists, ...loaded, ...ofMembers, ...wholes].flatMap(([, names, to]) => {
    return names.split(',').map((name) => {
      return `${join(dirname(path), to)}: ${/^(?:type )?(\w+)/.exec(name.trim())?.[1]}`;
    });
  });
}

/** Lua files get all constants of this file, and use them by name. */
const LUA_CONSTANTS = 'src/engine/redis/scripts/protocol-constants.ts';
const usedInLua = luaFiles.flatMap(({ text }) => {
  return [...text.matchAll(/\b[A-Z][A-Z0-9_]+\b/g)].map(([name]) => `${LUA_CONSTANTS}: ${name}`);
});

/** Has modules that it prints, as text. */
const PRINTS = 'src/commands/gateways/node-client.ts';

const exported = product
  .filter((path) => path !== PRINTS && !published.includes(path))
  .flatMap((path) => {
    const found = texts
      .get(path)!
      .matchAll(/^export (?:abstract )?(?:async )?(?:function\*?|class|const|let) (\w+)/gm);
    return [...found].map(([, name]) => ({ path, name }));
  });

test('every export is imported', () => {
  const imported = new Set([...[...texts.keys()].flatMap(importedBy), ...usedInLua]);
  const unused = exported.filter(({ path, name }) => !imported.has(`${path}: ${name}`));
  expect(unused).toEqual([]);
});

test('every export is used by other code than tests', () => {
  const ofProduct = [...texts.keys()].filter((path) => !path.startsWith('test/'));
  const imported = new Set([...ofProduct.flatMap(importedBy), ...usedInLua]);
  const unused = exported.filter(({ path, name }) => {
    const own = texts.get(path)!.match(new RegExp(`\\b${name}\\b`, 'g'))!;
    return own.length === 1 && !imported.has(`${path}: ${name}`);
  });
  expect(unused).toEqual([]);
});

test('every method of an interface is called by other code than its implementations', () => {
  const methods = product.flatMap((path) => {
    const interfaces = texts.get(path)!.matchAll(/^export interface (\w+)[^{]*\{\n(.*?)^\}/gms);
    return [...interfaces].flatMap(([, type, body]) => {
      const found = body.matchAll(/^ {2}(\w+)(?:<[^>\n]*>)?\(/gm);
      return [...found].map(([, name]) => ({ type, name }));
    });
  });
  expect(methods.length).toBeGreaterThan(50);
  const unused = methods.filter(({ type, name }) => {
    if (`${type}.${name}` in WAITING) return false;
    // An implementation that passes the call on does not count.
    const own = new RegExp(`^ {2}(?:async )?${name}(?:<[^>\\n]*>)?\\(.*?^ {2}\\}`, 'gms');
    const call = new RegExp(`\\.${name}\\b|[{,]\\s*${name}\\s*[,}]`);
    return !product.some((path) => call.test(texts.get(path)!.replace(own, '')));
  });
  expect(unused).toEqual([]);
});
