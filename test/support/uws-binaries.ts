/** The build of uWebSockets.js that servers under test load, and the hashes of its binaries. */

import { platformPackage } from '../../src/server/binary.ts';

/** Whether servers load `uws-pack` although this platform has its own package. */
const wantsUwsPack = process.env.WEIR_TEST_UWS === 'uws-pack';

/** Whether they load `uws-pack`. Its HTTP parser is older than that of the platform packages. */
export const hasOldParser = wantsUwsPack || platformPackage() === undefined;

/**
 * SHA-256 of the Linux binaries of uWebSockets.js, by path below node_modules. The packages are
 * third-party repacks, so an unexpected change must be noticed.
 */
export const BINARY_SHA256: Readonly<Record<string, string>> = {
  '@uwsjs/linux-x64-20/uws.node':
    '4d482084b665c225892917ee0e9b9572d89eaa6f3dc200ff5e536293d3456c89',
  '@uwsjs/linux-x64-22/uws.node':
    'f687e7c3666b5cca9d355184bbf07bb0550f5ba0d3ffd453248ccfec552dde6c',
  '@uwsjs/linux-x64-24/uws.node':
    '177efdc682425d754474bd30f9586c487fa6694f790f3406a23885d0e61c07a0',
  '@uwsjs/linux-x64-26/uws.node':
    '604375741bf77780b34e7e299af9274cb1f56d73732201d19e3d8d8448176795',
  'uWebSockets.js/dist/bin/uws_linux_x64_115.node':
    '6f8d96d761a64beddb060f1f7f0e617dd293ed127ec1d57507aa561a0083171e',
  'uWebSockets.js/dist/bin/uws_linux_x64_127.node':
    '8cabc918bbf9a07323e54f89a33882491080b2eb35df0607f473ccdb1f3c31af',
  'uWebSockets.js/dist/bin/uws_linux_arm64_115.node':
    'c0e29fc143b46b584f3debec7910014ec228198fc1f17aaeacd1de7991bd3769',
  'uWebSockets.js/dist/bin/uws_linux_arm64_127.node':
    'd4c4f8b2c28c5f6544b49e36d91b0beee238a5b90a07904a947f77061c8b814d',
};
