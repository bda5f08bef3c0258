//! How the flow of elements through the stages of a graph adds up.

/// For each stage how many elements leave it per element of the job.
///
/// `inputs` are the stages that feed each stage (none: a source), all before it; `selectivities`
/// are elements out per element in; `flows` are elements that the sources have brought, which
/// decide what share of the job each of them is.
pub fn cumulative_selectivities(
    inputs: &[Vec<usize>],
    selectivities: &[f64],
    flows: &[f64],
) -> Vec<f64> {
    let of_sources = || inputs.iter().zip(flows).filter(|(inputs, _)| inputs.is_empty());
    // One more for each, so that one which has brought nothing yet still has a share.
    let total: f64 = of_sources().map(|(_, flow)| flow + 1.0).sum();
    let mut cumulative: Vec<f64> = Vec::with_capacity(inputs.len());
    for (place, inputs) in inputs.iter().enumerate() {
        let reaching = match inputs.is_empty() {
            true => (flows[place] + 1.0) / total,
            false => inputs.iter().map(|&input| cumulative[input]).sum(),
        };
        cumulative.push(reaching * selectivities[place]);
    }
    cumulative
}

/// For each stage how many steps it is from the sources, by the longest way.
pub fn depths(inputs: &[Vec<usize>]) -> Vec<usize> {
    let mut depths: Vec<usize> = Vec::with_capacity(inputs.len());
    for inputs in inputs {
        let deepest = inputs.iter().map(|&input| depths[input] + 1).max();
        depths.push(deepest.unwrap_or(0));
    }
    depths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectivities_multiply_along_a_chain() {
        let inputs = [vec![], vec![0], vec![1], vec![2]];
        let chain =
            cumulative_selectivities(&inputs, &[1.0, 0.5, 4.0, 0.25], &[7.0, 0.0, 0.0, 0.0]);
        assert_eq!(chain, [1.0, 0.5, 2.0, 0.5]);
    }

    #[test]
    fn paths_that_meet_add_their_flows_up() {
        // One source that feeds both 1 and 3, and 1 feeds 3 too.
        let inputs = [vec![], vec![0], vec![1], vec![0, 2]];
        let diamond = cumulative_selectivities(&inputs, &[1.0, 0.5, 1.0, 2.0], &[0.0; 4]);
        assert_eq!(diamond, [1.0, 0.5, 0.5, 3.0]);
        // Two sources, one of which brings three times as much (299 + 1 of 400).
        let inputs = [vec![], vec![], vec![0, 1]];
        let union = cumulative_selectivities(&inputs, &[1.0, 1.0, 0.5], &[299.0, 99.0, 0.0]);
        assert_eq!(union, [0.75, 0.25, 0.5]);
    }

    #[test]
    fn depth_is_the_longest_way_from_a_source() {
        let inputs = [vec![], vec![0], vec![], vec![2, 1], vec![0, 3]];
        assert_eq!(depths(&inputs), [0, 1, 0, 2, 3]);
    }
}
