// comparedLines bounds how many lines are compared with how many others, since that takes the product
// of both.
const comparedLines = 2000;

// common returns the numbers of the lines of the longest common subsequence. Between the lines at
// the beginning and at the end that are the same, nothing is common if that would take too long.
export function common(old, now) {
	const kept = {old: new Set(), now: new Set()};
	let start = 0;
	let [oldEnd, nowEnd] = [old.length, now.length];
	while (start < Math.min(oldEnd, nowEnd) && old[start] === now[start]) {
		kept.old.add(start);
		kept.now.add(start++);
	}
	while (Math.min(oldEnd, nowEnd) > start && old[oldEnd - 1] === now[nowEnd - 1]) {
		kept.old.add(--oldEnd);
		kept.now.add(--nowEnd);
	}
	if ((oldEnd - start) * (nowEnd - start) > comparedLines ** 2) return kept;
	const size = Array.from({length: oldEnd - start + 1}, () => new Uint32Array(nowEnd - start + 1));
	for (let i = oldEnd - start - 1; i >= 0; i--) {
		for (let j = nowEnd - start - 1; j >= 0; j--) {
			size[i][j] = old[start + i] === now[start + j] ? size[i + 1][j + 1] + 1 :
				Math.max(size[i + 1][j], size[i][j + 1]);
		}
	}
	for (let i = start, j = start; i < oldEnd && j < nowEnd;) {
		if (old[i] === now[j]) {
			kept.old.add(i++);
			kept.now.add(j++);
		} else if (size[i + 1 - start][j - start] >= size[i - start][j + 1 - start]) i++;
		else j++;
	}
	return kept;
}
