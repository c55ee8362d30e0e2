/**
 * Builds the dashboard: bundles its script and style, gives them names with a hash of their content,
 * and compresses all files. The server sends them as they are. It is plain JavaScript, because it
 * runs as a part of the build. Arguments: the directory, and `--sourcemap` for source maps.
 */

import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { rolldown } from 'rolldown';

const SOURCE = new URL('.', import.meta.url).pathname;
const [directory, ...flags] = process.argv.slice(2);

/** Where the server has the files whose names contain a hash. */
const FILES_PATH = '/dashboard/assets/';

async function bundleScript() {
  const bundle = await rolldown({
    input: join(SOURCE, 'main.tsx'),
    platform: 'browser',
    tsconfig: join(SOURCE, 'tsconfig.json'),
  });
  const { output } = await bundle.generate({
    format: 'esm',
    minify: true,
    sourcemap: flags.includes('--sourcemap') ? 'hidden' : false,
  });
  await bundle.close();
  const [script, map] = output;
  if (map !== undefined) writeFileSync(join(directory, 'main.js.map'), map.source);
  return script.code;
}

/** Removes comments and the blanks around punctuation, none of which is in a text of the style. */
function minifyStyle(style) {
  return style
    .replace(/\/\*[\s\S]*?\*\//g, '')
    .replace(/\s+/g, ' ')
    .replace(/ ?([{};,]) ?/g, '$1')
    .replace(/;}/g, '}')
    .trim();
}

/** Writes a file of the dashboard. @returns its path on the server */
function write(name, content) {
  writeFileSync(join(directory, `${name}.gz`), gzipSync(content, { level: 9 }));
  return FILES_PATH + name;
}

function writeHashed(name, content) {
  const hash = createHash('sha256').update(content).digest('hex').slice(0, 16);
  return write(name.replace('.', `-${hash}.`), content);
}

rmSync(directory, { recursive: true, force: true });
mkdirSync(directory, { recursive: true });
const read = (name) => readFileSync(join(SOURCE, name), 'utf8');
const style = read('style.css') + read('charts.css');
const paths = {
  script: writeHashed('main.js', await bundleScript()),
  style: writeHashed('style.css', minifyStyle(style)),
  icon: writeHashed('icon.svg', read('icon.svg')),
};
write(
  'index.html',
  read('index.html').replace(/\{(\w+)\}/g, (_, name) => paths[name]),
);
