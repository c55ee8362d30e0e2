/**
 * A store in format version 2, as a weir of that version wrote it. It holds a key, the namespaces
 * `login` (of a policy) and `api`, an override in `api` and an override of a namespace pattern.
 */

import { writeFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';

export function writeStoreVersion2(path: string): void {
  writeFileSync(path, gunzipSync(Buffer.from(STORE_GZIP_BASE64.join(''), 'base64')));
}

const STORE_GZIP_BASE64 = [
  'H4sIAAAAAAACA+3ZS2wbVRQA0Dcfx01I/FLl15JWmQyiLakb5v8JLJpUBkV10+A6ouFnvZl50w61PemMExqhCBxWbBGb',
  'rtggIRZsu2IDEmWJkFiwYcmmEosiUbGp1DfOx0khFLoApN6jzHjmvvF9N7I39/rSK+WoRaUwThqkJeloEPE8OitJCCGe',
  'HT2oS9w+dnDo0Xg0vfbhAP4d5QonEX4Df4dR4SN2CQAAAAAAAADg/ynK5ccmJrj2ZIt4dRqv0SSJApruXvScq5RmqyWp',
  'OjtXLkm7YelUQv04CaS58sU5aeFiVVpYKpeLkp/40vxCtfRyqbIbfU66VK3Mn6vWxfzY5CTXfqazVZM0aLpCfJp2r3L7',
  'NuvGH2e314T82MgI1x7r7HaNrqfZIe7bIYs8Tu7r3FbuUid3g7ZIdvD7cmcR6VT2P0jV0uWqtFiZvzBbWZbOl5aL0j/f',
  '8iTfM/bCCIeiZkBvpNfrrLevkdVW3LmvZZvV1OwssM/0UPbBDuBFlMejAr6Df8Qf4/fwKNZxHb7wAAAAAAAAAACeBOP9',
  '4plCrjtZmPbj1WZLQ+iu8uzbR7B4uiDuzji210xh7kQuXsPfoGMFMaFrURrFTYP03rvVCbElenhQPN5dM0cLt6WhPnGy',
  'IGYDhq00au328pfPi+J4WbxK0qvn6bqhW7ZGjVAhnuoR3VRD13G1wLPDkLiOT/WlwQqreKibWD3s8+4gL44XRFZjFtGO',
  '5NUfhjnx6HCuQZJrNHmHRglCm5++/1sfe28e30T4e/w1voe/wDfxT/gOfAMAAAAAAAAAAIB/xZBwmntoxoCHhTPcw0OJ',
  '/oIwyXUHCH1PCePc9uhA7BeOcztTgcFsYXsewPcKR3u3JgEDbCsOTyD2BwAAAAAAAAAAPKnab3HiB474rhwF8ozM2uya',
  'pge24ofUclXNC0zf8YmnhLolF+UgukLTFnvOsFQzUHSiaYHn6I4SWFS1KKVe4GsBpT51qaqapkI9Ql3PM4iv2r6tOdRQ',
  'LdshWa6szWeZ4lDa7tkljUVXaNKI0uw2lWdelxPSovWoEbWmp6Y7r/KbRdlPKAsHF9gTqu2auu7qpmOrRlGmN1aihKbZ',
  'SnO1Xt9ImiN3s/6fx4sIf8ZOAAAAAAAAAAAA+FuWeLF9YmdekNSbaS2khhOagWKrDlEMjbX9JrE96nSbfLISyQf07a7h',
  'bJw9dFl4lRPbU/vTEss2VF+3iB1aITEtwzd9w1W7aevxlah5UGLNsDde/PmXrzr9f+FzhF9iJwAAAAAAAAAA4L/WfpoX',
  'N5VuCxwnNd0LfYv6TmCYxHE0x1cCzwwCl/W8qR+vdFrrKXYTBbTZisKIJiyymtKkph7QFruqphTlrZ/SZ+yiHKwmpBXF',
  'zewh3VIyLF06m643fXkmJPWUbhxbX/ykbXPiZpjbW5ztssIUx6Wa6dq6a9qhobGCvT3FPWo88Me6p/5iTrBbt5oVubdy',
  '60/rRujbX4X7DwA/c0K1AGAAAA==',
];
