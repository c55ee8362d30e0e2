/** What a file imports: lower layers only, and nothing that imports it. */

import { existsSync, readdirSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { describe, expect, test } from 'vitest';
import {
  asText,
  BROWSER_CODE,
  code,
  type Import,
  importsOf,
  luaFiles,
  manifest,
  ROOT,
  read,
  sources,
  tools,
} from './files.ts';

/** The table of layers, from the lowest to the highest. A row may have several folders. */
const [, TABLE] = /\n## Layers\n(.*?)\n## /s.exec(read('docs/architecture.md')) ?? [];
const LAYERS = [...TABLE.matchAll(/^\| (`.*?) \|/gm)].map(([, cell]) => cell.match(/[\w./-]+/g)!);

const folderOf = (path: string) => relative('src', dirname(path)) || '.';
/** The layer of a folder is that of the nearest folder around it in the table. */
function layerOf(folder: string): number {
  // The files of src itself start the others.
  if (folder === '.') return LAYERS.length;
  const layer = LAYERS.findIndex((folders) => folders.includes(folder));
  return layer >= 0 ? layer : layerOf(dirname(folder));
}

/** Imports between folders of src. */
const folderImports = sources.flatMap(importsOf).filter(({ from, to }) => {
  return to.startsWith('src/') && dirname(from) !== dirname(to);
});

/** Each cycle, as the names in it. */
function cyclesOf(imports: readonly Import[]): string[] {
  const imported = new Map<string, Set<string>>();
  for (const { from, to } of imports) imported.set(from, (imported.get(from) ?? new Set()).add(to));
  const cycles: string[] = [];
  const isDone = new Set<string>();
  const visit = (name: string, path: string[]) => {
    const start = path.indexOf(name);
    if (start >= 0) cycles.push([...path.slice(start), name].join(' -> '));
    if (start >= 0 || isDone.has(name)) return;
    for (const next of imported.get(name) ?? []) visit(next, [...path, name]);
    isDone.add(name);
  };
  for (const name of imported.keys()) visit(name, []);
  return cycles;
}

/** The sources of the server that the dashboard loads. They import types at most. */
const LOADED_IN_BROWSERS = ['src/auth/roles.ts', 'src/core/figures.ts', 'src/core/window-rules.ts'];

describe('the table of layers', () => {
  test('has the folders of src, and each that it names exists', () => {
    const folders = readdirSync(join(ROOT, 'src'), { withFileTypes: true })
      .filter((entry) => entry.isDirectory())
      .map(({ name }) => name);
    const named = LAYERS.flat();
    expect(folders.filter((folder) => !named.includes(folder))).toEqual([]);
    expect(named.filter((folder) => !existsSync(join(ROOT, 'src', folder)))).toEqual([]);
  });

  test('is the order of the imports', () => {
    const upward = folderImports.filter(({ from, to }) => {
      return layerOf(folderOf(from)) < layerOf(folderOf(to));
    });
    expect(upward.map(asText)).toEqual([]);
  });
});

describe('imports', () => {
  test('form no cycle of files, type imports included', () => {
    expect(cyclesOf(code.flatMap(importsOf))).toEqual([]);
  });

  test('form no cycle of folders, type imports included', () => {
    const between = folderImports.map(({ from, to }) => ({
      from: folderOf(from),
      to: folderOf(to),
    }));
    expect(cyclesOf(between)).toEqual([]);
  });

  test('of src name no tool', () => {
    const ofTools = sources.flatMap(importsOf).filter(({ to }) => to.startsWith('tools/'));
    expect(ofTools.map(asText)).toEqual([]);
  });

  test('of an engine name its interface and the window rules only, in the API and the server', () => {
    const below = folderImports.filter(({ from, to }) => {
      return /^src\/(api|server)\//.test(from) && to.startsWith('src/engine/');
    });
    const creates = 'src/decision-thread/create-engine.ts';
    const named = below.filter(({ from, to }) => {
      return (
        from !== creates &&
        !/^src\/engine\/(engine|hold-engine|hold-id|request-engine|windows\/\w+)\.ts$/.test(to)
      );
    });
    expect(named).toEqual([]);
    const http = folderImports.filter(({ from, to }) => {
      return (
        from.startsWith('src/engine/') && !/^src\/(core|redis|shared-memory|engine)\//.test(to)
      );
    });
    expect(http).toEqual([]);
  });

  test('of engines name no other engine, nor what runs their shard workers', () => {
    const folders = ['memory', 'redis', 'worker'];
    const engineOf = (path: string) => {
      return folders.find((name) => path.startsWith(`src/engine/${name}/`));
    };
    expect(folders.filter((name) => !existsSync(join(ROOT, 'src/engine', name)))).toEqual([]);
    const crossing = folderImports.filter(({ from, to }) => {
      return engineOf(from) !== undefined && ![undefined, engineOf(from)].includes(engineOf(to));
    });
    expect(crossing.map(asText)).toEqual([]);
    // The folders that all engines share import none of the engines.
    const shared = folderImports.filter(({ from, to }) => {
      return /^src\/engine\/(windows|table|queue)\//.test(from) && engineOf(to) !== undefined;
    });
    expect(shared.map(asText)).toEqual([]);
  });

  test('of the dashboard load declarations of the server only, which loads none of it', () => {
    const isBrowserCode = (path: string) => path.startsWith(BROWSER_CODE);
    const crossing = sources.flatMap(({ path, text }) => {
      return [...text.matchAll(/^(import|export) (type )?[^;]*?'(\.[^']+)'/gm)]
        .map(([, , type, to]) => ({ path, type, to: join(dirname(path), to) }))
        .filter(({ to }) => isBrowserCode(path) !== isBrowserCode(to));
    });
    expect(crossing.length).toBeGreaterThan(0);
    const isPermitted = ({ path, type, to }: (typeof crossing)[number]) => {
      return isBrowserCode(path) && (type !== undefined || LOADED_IN_BROWSERS.includes(to));
    };
    expect(crossing.filter((it) => !isPermitted(it))).toEqual([]);
    for (const path of LOADED_IN_BROWSERS) {
      expect([path, crossing.some(({ to }) => to === path)]).toEqual([path, true]);
      expect([path, /^import (?!type )/m.test(read(path))]).toEqual([path, false]);
    }
  });

  test('of the texts of the API load them in no server', () => {
    const isText = (path: string) => {
      return /\.texts\.ts$|^src\/api\/(texts\/|operations\/documentation\.ts$)/.test(path);
    };
    const loading = sources.flatMap(({ path, text }) => {
      return [...text.matchAll(/^(?:import|export) (type )?[^;]*?'(\.[^']+)'/gm)]
        .map(([, type, to]) => ({ from: path, type, to: join(dirname(path), to) }))
        .filter(({ from, type, to }) => type === undefined && isText(to) && !isText(from));
    });
    expect(loading.map(asText)).toEqual([]);
    expect(sources.filter(({ path }) => isText(path)).length).toBeGreaterThan(20);
  });

  test('reach all sources from the entries of the build', () => {
    const scripts = Object.values(manifest.scripts).join(' ');
    const built = [...scripts.matchAll(/(?:src|tools)\/\S+\.ts/g)].map(([entry]) => entry);
    const exported = Object.keys(manifest.exports)
      .filter((name) => name !== './package.json')
      .map((name) => join('src/middleware', `${name}.ts`));
    // `src/dashboard/build.mjs` bundles it.
    const entries = [...built, ...exported, `${BROWSER_CODE}main.tsx`];
    const reached = new Set<string>();
    const left = [...entries];
    while (left.length > 0) {
      const path = left.pop()!;
      if (reached.has(path)) continue;
      reached.add(path);
      for (const { to } of importsOf({ path, text: read(path) })) left.push(to);
    }
    // A declaration of types belongs to no module.
    const modules = [...sources, ...luaFiles, ...tools].filter(
      ({ path }) => !path.endsWith('.d.ts'),
    );
    expect(modules.map(({ path }) => path).filter((path) => !reached.has(path))).toEqual([]);
  });
});
