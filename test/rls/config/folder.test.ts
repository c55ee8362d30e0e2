/** Which files of a folder are read, and how a change of them is noticed. */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  mkdirSync,
  renameSync,
  rmSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { RLS_FILE_MAX_BYTES, RLS_FOLDER_MAX_BYTES } from '../../../src/core/constants.ts';
import { StartError } from '../../../src/core/errors.ts';
import { folderSignature, readFolder } from '../../../src/rls/config/folder.ts';
import type { RlsFile } from '../../../src/rls/config/parse.ts';
import { removeDirectory, temporaryDirectory } from '../../support/server.ts';

let folder = '';
beforeEach(() => {
  folder = temporaryDirectory();
});
afterEach(() => removeDirectory(folder));

const at = (...names: string[]) => join(folder, ...names);
function write(name: string, text: string): void {
  mkdirSync(join(at(name), '..'), { recursive: true });
  writeFileSync(at(name), text);
}
/** The names of the files that are read, and their texts. */
const read = () => {
  return readFolder(folder).files.map(({ name, text }) => [name.slice(folder.length + 1), text]);
};

function faultOf(path: string, onFiles = (_files: readonly RlsFile[]) => {}): string {
  try {
    onFiles(readFolder(path).files);
  } catch (error) {
    expect(error).toBeInstanceOf(StartError);
    return (error as StartError).message;
  }
  return 'no fault';
}

/** A volume of a ConfigMap, as the kubelet writes it: each file is a link through `..data`. */
function publish(version: string, texts: Readonly<Record<string, string>>): void {
  for (const [name, text] of Object.entries(texts)) write(join(`..${version}`, name), text);
  symlinkSync(`..${version}`, at('..data_tmp'));
  renameSync(at('..data_tmp'), at('..data'));
}

describe('a folder', () => {
  test('has all files, also of subfolders and of any extension, in the order of their paths', () => {
    write('b.yaml', '1');
    write('a/z', '2');
    write('a/b/c.json', '3');
    write('a.txt', 'é');
    expect(read()).toEqual([
      ['a.txt', 'é'],
      ['a/b/c.json', '3'],
      ['a/z', '2'],
      ['b.yaml', '1'],
    ]);
  });

  test('has no names that begin with a dot', () => {
    write('a.yaml', '1');
    write('.a.yaml.swp', '2');
    write('.git/config', '3');
    expect(read()).toEqual([['a.yaml', '1']]);
  });

  test('has what symbolic links name, and a link to a folder around it ends', () => {
    write('a/b.yaml', '1');
    symlinkSync(at('a', 'b.yaml'), at('link.yaml'));
    symlinkSync(folder, at('a', 'loop'));
    symlinkSync('.', at('a', 'self'));
    expect(read()).toEqual([
      ['a/b.yaml', '1'],
      ['link.yaml', '1'],
    ]);
  });

  test('may be a symbolic link itself', () => {
    write('real/a.yaml', '1');
    symlinkSync('real', at('link'));
    const [file] = readFolder(at('link')).files;
    expect(file).toEqual({ name: at('link', 'a.yaml'), text: '1' });
  });
});

describe('a folder that cannot be used', () => {
  test('is an error that names it, and says what is accepted', () => {
    const accepted = 'it must be a folder with YAML files';
    const missing = at('none');
    expect(faultOf(missing)).toBe(
      `${missing} cannot be read: no such file or directory; ${accepted}`,
    );
    write('file', '');
    expect(faultOf(at('file'))).toBe(`${at('file')} is not a folder; ${accepted}`);
    mkdirSync(at('empty', '.git'), { recursive: true });
    expect(faultOf(at('empty'))).toMatch(/empty has no file: it must be a folder with at least /);
  });

  test('has a link to nothing, or a file that is no text', () => {
    symlinkSync('nowhere', at('a.yaml'));
    expect(faultOf(folder)).toBe(`${at('a.yaml')} cannot be read: no such file or directory`);
    rmSync(at('a.yaml'));
    writeFileSync(at('b.yaml'), Buffer.from([0xff]));
    expect(faultOf(folder)).toBe(`${at('b.yaml')} must be a text in UTF-8; it has other bytes`);
  });

  test('has a file that is too large, or files that are', () => {
    write('a', '');
    truncateSync(at('a'), RLS_FILE_MAX_BYTES + 1);
    expect(faultOf(folder)).toBe(
      `${at('a')} must have at most ${RLS_FILE_MAX_BYTES} bytes; got ${RLS_FILE_MAX_BYTES + 1}`,
    );
    for (let i = 0; i * RLS_FILE_MAX_BYTES < RLS_FOLDER_MAX_BYTES; i++) {
      write(`f${i}`, '');
      truncateSync(at(`f${i}`), RLS_FILE_MAX_BYTES);
    }
    expect(faultOf(folder)).toMatch(
      `must have at most ${RLS_FOLDER_MAX_BYTES} bytes together; got`,
    );
  });
});

describe('the signature', () => {
  test('stays the same without a change, and is that of the files that were read', () => {
    write('a', '1');
    write('.b', '1');
    const { signature } = readFolder(folder);
    write('.b', '2');
    chmodSync(at('a'), 0o600);
    expect(folderSignature(folder)).toBe(signature);
  });

  test('changes with each kind of change', () => {
    write('a', '1');
    const changes: (() => void)[] = [
      () => write('b', '1'),
      () => write('b', '12'),
      () => utimesSync(at('b'), 1, 1),
      () => renameSync(at('b'), at('c')),
      () => write('d/e', '1'),
      () => rmSync(at('c')),
      () => {
        write('.new', '1');
        utimesSync(at('.new'), 1, 1);
        utimesSync(at('a'), 1, 1);
      },
      // Another file with the same name, size and time.
      () => renameSync(at('.new'), at('a')),
    ];
    const seen = new Set([folderSignature(folder)]);
    for (const [index, change] of changes.entries()) {
      change();
      seen.add(folderSignature(folder));
      expect([index, seen.size]).toEqual([index, index + 2]);
    }
  });

  test('changes when a ConfigMap is replaced, whose files are read once each', () => {
    publish('v1', { 'a.yaml': 'one', 'b.yaml': 'two' });
    symlinkSync('..data/a.yaml', at('a.yaml'));
    symlinkSync('..data/b.yaml', at('b.yaml'));
    const first = readFolder(folder);
    expect(first.files.map(({ text }) => text)).toEqual(['one', 'two']);
    publish('v2', { 'a.yaml': 'new', 'b.yaml': 'two' });
    expect(folderSignature(folder)).not.toBe(first.signature);
    const second = readFolder(folder);
    expect(second.files.map(({ text }) => text)).toEqual(['new', 'two']);
    expect(second.signature).toBe(folderSignature(folder));
  });
});

/** Replaces a ConfigMap again and again, as the kubelet does, until its standard input ends. */
const REPLACE = `
const fs = require('fs');
process.chdir(process.argv[1]);
let running = true;
process.stdin.on('end', () => { running = false; }).resume();
let version = 0;
const replace = () => {
  version++;
  fs.mkdirSync('..v' + version);
  for (const name of 'abcd') fs.writeFileSync('..v' + version + '/' + name, String(version));
  fs.symlinkSync('..v' + version, '..data_tmp');
  fs.renameSync('..data_tmp', '..data');
  fs.rmSync('..v' + (version - 1), { recursive: true, force: true });
  if (version === 1) process.stdout.write('ready');
  if (running) setTimeout(replace, version % 3);
};
replace();
`;

test('files that are read while a ConfigMap is replaced are all of one version', async () => {
  for (const name of ['a', 'b', 'c', 'd']) symlinkSync(join('..data', name), at(name));
  const child = spawn(process.execPath, ['-e', REPLACE, folder], { stdio: 'pipe' });
  const exited = once(child, 'exit');
  await once(child.stdout, 'data');
  const versions = new Set<string>();
  try {
    let reads = 0;
    for (; reads < 20_000 && versions.size < 50; reads++) {
      let texts: string[] = [];
      const fault = faultOf(folder, (files) => {
        texts = files.map(({ text }) => text);
      });
      if (fault === 'no fault') {
        expect(new Set(texts).size).toBe(1);
        versions.add(texts[0]);
      } else expect(fault).toMatch(/cannot be read: no such file|it changed each of/);
    }
  } finally {
    child.stdin.end();
    await exited;
  }
  expect(versions.size).toBe(50);
});
