/**
 * The software bill of materials: a document in CycloneDX 1.6 (https://cyclonedx.org/docs/1.6/json)
 * of all packages that weir runs with. It lists the packages that npm has installed, by their real
 * names: `uWebSockets.js` is an alias of another package. It also lists the packages that the build
 * copies into dist, which npm does not install.
 */

import { isoTime } from '../../src/shared-memory/clock.ts';

/** A package in npm's lock file, or in its list of installed packages. */
interface LockedPackage {
  /** Only if it differs from the last part of the path: the package is an alias. */
  name?: string;
  version: string;
  license?: string;
  /** As in Subresource Integrity: `sha512-` and base64. */
  integrity?: string;
  dependencies?: Record<string, string>;
  optionalDependencies?: Record<string, string>;
  peerDependencies?: Record<string, string>;
}

/** By path: `node_modules/piscina/node_modules/foo`. */
export interface Lock {
  packages: Record<string, LockedPackage>;
}

interface Manifest {
  name: string;
  version: string;
  description: string;
  license: string;
  dependencies: Record<string, string>;
  optionalDependencies: Record<string, string>;
}

interface Component {
  type: 'library' | 'application';
  'bom-ref': string;
  group?: string;
  name: string;
  version: string;
  description?: string;
  hashes?: { alg: string; content: string }[];
  licenses: { license: { id: string } }[];
  purl: string;
  properties?: { name: string; value: string }[];
}

/** A document in CycloneDX 1.6. */
export interface BillOfMaterials {
  $schema: string;
  bomFormat: 'CycloneDX';
  specVersion: string;
  version: number;
  metadata: { timestamp: string; component: Component };
  components: Component[];
  dependencies: { ref: string; dependsOn: string[] }[];
}

/** Development dependencies whose code the build copies into dist. NOTICE has their licences. */
export const BUNDLED_PACKAGES = ['preact', 'typebox', 'yaml'];

const BUNDLED = [{ name: 'cdx:npm:package:bundled', value: 'true' }];
const MODULES = 'node_modules/';

/**
 * @param installed what npm has installed for production
 * @param timeMs of the document, since 1970: the same arguments give the same document
 * @throws if a package has no licence, or if a dependency that is not optional is missing
 */
export function billOfMaterials(
  { manifest, lock }: { manifest: Manifest; lock: Lock },
  installed: Lock,
  timeMs: number,
): BillOfMaterials {
  const paths = Object.keys(installed.packages).sort();
  const libraries = new Map(
    paths.map((path) => [path, componentOf(path, installed.packages[path])]),
  );
  const bundled = BUNDLED_PACKAGES.map((name) => {
    const path = `${MODULES}${name}`;
    return { ...componentOf(path, lock.packages[path]), properties: BUNDLED };
  });
  const { version, license, description } = manifest;
  const product: Component = {
    ...componentOf(`${MODULES}${manifest.name}`, { version, license }),
    type: 'application',
    description,
  };

  /** The references of the installed packages that a package at a path gets by these names. */
  const resolve = (from: string, { dependencies, optionalDependencies }: Partial<Manifest>) => {
    const optional = Object.keys(optionalDependencies ?? {});
    const names = [...new Set([...Object.keys(dependencies ?? {}), ...optional])].sort();
    return names.flatMap((name) => {
      const path = resolvePath(from, name, libraries);
      if (path !== undefined) return [libraries.get(path)!['bom-ref']];
      if (optional.includes(name)) return [];
      throw new Error(`${from || manifest.name} depends on ${name}, which is not installed`);
    });
  };
  const ofProduct = [...resolve('', manifest), ...bundled.map((each) => each['bom-ref'])];
  return {
    $schema: 'http://cyclonedx.org/schema/bom-1.6.schema.json',
    bomFormat: 'CycloneDX',
    specVersion: '1.6',
    version: 1,
    metadata: {
      timestamp: isoTime(timeMs - (timeMs % 1_000)),
      component: product,
    },
    components: [...libraries.values(), ...bundled],
    dependencies: [
      { ref: product['bom-ref'], dependsOn: ofProduct },
      ...paths.map((path) => ({
        ref: libraries.get(path)!['bom-ref'],
        dependsOn: resolve(path, installed.packages[path]),
      })),
      ...bundled.map((each) => ({ ref: each['bom-ref'], dependsOn: [] })),
    ],
  };
}

/** As Node resolves: in the package's own node_modules, then in that of each enclosing one. */
function resolvePath(
  from: string,
  name: string,
  installed: ReadonlyMap<string, unknown>,
): string | undefined {
  for (let at = from; ; at = at.slice(0, Math.max(0, at.lastIndexOf(`/${MODULES}`)))) {
    const path = at === '' ? `${MODULES}${name}` : `${at}/${MODULES}${name}`;
    if (installed.has(path)) return path;
    if (at === '') return undefined;
  }
}

function componentOf(path: string, locked: LockedPackage): Component {
  const fullName = locked.name ?? path.slice(path.lastIndexOf(MODULES) + MODULES.length);
  const [, group, name] = /^(?:(@[^/]+)\/)?(.+)$/.exec(fullName)!;
  if (locked.license === undefined) throw new Error(`${path} has no licence in the lock file`);
  const purl = `pkg:npm/${fullName.replace('@', '%40')}@${locked.version}`;
  return {
    type: 'library',
    // A package may be installed in several versions, and one version at several paths.
    'bom-ref': locked.integrity === undefined ? purl : path,
    ...(group === undefined ? {} : { group }),
    name,
    version: locked.version,
    ...(locked.integrity === undefined ? {} : { hashes: [hashOf(locked.integrity)] }),
    licenses: [{ license: { id: locked.license } }],
    purl,
  };
}

function hashOf(integrity: string): { alg: string; content: string } {
  const [algorithm, base64] = integrity.split('-');
  const content = Buffer.from(base64, 'base64').toString('hex');
  return { alg: algorithm.toUpperCase().replace('SHA', 'SHA-'), content };
}
