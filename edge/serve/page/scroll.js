// Scrolling.  The end stays in sight while anything grows (an answer, the keyboard of a phone), until somebody scrolls
// up; then the place that is read does, also where a narrower window makes the lines above it longer.
import { $ } from "./nodes.js";

const main = $("main"), talk = $("talk");
export const scroll = { following: true };
let before = 0, place = null, width = 0;
export function follow() {
  if (main.clientWidth !== width && !scroll.following && place?.node.isConnected) {
    main.scrollTop += place.node.getBoundingClientRect().top - main.getBoundingClientRect().top - place.top;
  }
  width = main.clientWidth;
  if (scroll.following) main.scrollTop = main.scrollHeight;
  atEnd();
}
function atEnd() {
  const end = main.scrollHeight - main.scrollTop - main.clientHeight < 40;
  $("end").hidden = end || !talk.querySelector("article");
  return end;
}
main.addEventListener("scroll", () => {
  scroll.following = atEnd() || (scroll.following && main.scrollTop >= before);
  before = main.scrollTop;
  if (main.clientWidth !== width) return; // the browser did it, not the reader
  const { top } = main.getBoundingClientRect();
  for (const node of talk.querySelectorAll(".words, .text > *")) { // the first that is in sight
    const { top: at, bottom } = node.getBoundingClientRect();
    if (bottom > top) { place = { node, top: at - top }; break; }
  }
});
const sizes = new ResizeObserver(follow);
for (const each of [main, talk]) sizes.observe(each);
$("end").onclick = () => { scroll.following = true; follow(); main.focus({ preventScroll: true }); };
